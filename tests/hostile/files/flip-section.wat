;; attack: A bit of the first section's kind is flipped.
;; expect: load -> malformed
;; bytes: flip 8
