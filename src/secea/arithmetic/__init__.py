"""Pure mathematics: fields, fixed point, codes, groups; and the compiled loops behind them."""
