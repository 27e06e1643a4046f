;; attack: A bit of the first section's kind is flipped.
;; expect: load -> invalid
;; bytes: flip 8
