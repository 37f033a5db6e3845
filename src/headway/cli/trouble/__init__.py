"""`headway trouble`: slow consumers made to order."""
