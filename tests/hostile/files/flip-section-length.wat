;; attack: A bit of the first section's length is flipped.
;; expect: load -> malformed
;; bytes: flip 9
