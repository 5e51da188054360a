"""The commands of `secea` that are more than a few lines, and what all commands have in common (`shell`)."""
