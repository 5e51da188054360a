"""The parties as state machines that follow a form's table of phases; no form is named here."""
