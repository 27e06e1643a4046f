;; attack: A bit of the format's version is flipped.
;; expect: load -> malformed
;; bytes: flip 4
