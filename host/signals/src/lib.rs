//! What a router knows of prompts and workers: tokens, prefix overlaps, scraped metrics.
