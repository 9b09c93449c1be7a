"""Max-min fairness and dominant resource fairness."""
