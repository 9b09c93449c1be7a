"""Problems that several parts of the house have to solve: pure functions of numbers, none of them knows a policy."""
