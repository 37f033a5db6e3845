"""Plans: the policies and pools that a lab is to compare, as people write them."""
