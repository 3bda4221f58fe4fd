"""What a run's figures mean: verdict, tipping point, knee and cliff, cost. Everybody who tells of a run asks here."""
