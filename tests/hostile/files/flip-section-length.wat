;; attack: A bit of the first section's length is flipped.
;; expect: load -> invalid
;; bytes: flip 9
