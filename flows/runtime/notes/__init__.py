"""Files of a store for people who look at it: where its flow runs are recorded, what works on it, and what worked on it."""
