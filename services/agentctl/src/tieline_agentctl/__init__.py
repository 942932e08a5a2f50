"""Our agentctl daemon."""
