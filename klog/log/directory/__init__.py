"""The files of a partition directory and its log.dir other than segments: directory names and Kafka's text files."""
