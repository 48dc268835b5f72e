"""Which node, call, site and record of one run belongs to which of the other, with reason and confidence."""
