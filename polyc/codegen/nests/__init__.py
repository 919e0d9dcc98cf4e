"""isl AST → LoopNest, and what is changed of a LoopNest before code is written: one transformation a file."""
