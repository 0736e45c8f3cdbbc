"""What a picture should look like, whatever the update says."""
