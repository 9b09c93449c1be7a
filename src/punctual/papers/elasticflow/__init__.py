"""ElasticFlow: guaranteed deadlines by minimum satisfactory shares."""
