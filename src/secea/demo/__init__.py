"""`secea demo`: a whole federation on real data, with what each party sees beside the truth."""
