"""Per-job feedback: one controller a file, each turning readings of a job into its demand."""
