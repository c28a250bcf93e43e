"""Pages on which worlds work: their tools, business clusters of tools, and conversations that are taken up again."""
