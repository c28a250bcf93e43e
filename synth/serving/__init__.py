"""Worlds served to other programs: any world, or the start of a stored task, as an MCP server over stdio or HTTP."""
