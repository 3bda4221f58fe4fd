"""What a run's figures mean: verdict, tipping point, knee and cliff, cost. All formats use these results."""
