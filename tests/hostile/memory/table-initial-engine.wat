;; attack: Declares a table of 100,000 elements in the roomier profile.
;; expect: instantiate -> memory
;; limits: profile=engine

;; in core:
(table 100000 funcref)
