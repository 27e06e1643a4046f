;; attack: A bit of the format's version is flipped.
;; expect: load -> invalid
;; bytes: flip 4
