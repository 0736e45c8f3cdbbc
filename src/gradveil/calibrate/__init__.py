"""How strong a defense has to be: the least strength at which the line-up names few enough pictures."""
