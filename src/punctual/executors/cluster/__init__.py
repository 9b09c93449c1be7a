"""Jobs on several nodes: each node has an agent, and every command goes to the agent of the job's node."""
