"""Mathematical functions as inline polynomials: no tables in memory, the same bits in scalar and vector form."""
