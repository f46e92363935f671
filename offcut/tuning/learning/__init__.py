"""Learning from records: training sets, held-out tables, and the price that a campaign corrects as it goes."""
