"""Files of docs/ that are made from the contract and from sql/, so that they cannot drift from them."""
