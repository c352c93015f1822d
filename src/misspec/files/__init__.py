"""Files: versioned archives, records that grow, tables of cells."""
