"""directory: what lies in a partition's directory and in its log.dir besides segments: names, Kafka's text files."""
