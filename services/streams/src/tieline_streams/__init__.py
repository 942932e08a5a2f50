"""The streams service: agentctl connections and their events."""
