"""What a study looks like. Matplotlib is imported when something is drawn."""
