;; attack: Uses tables with 64-bit indices, which no policy needs.
;; expect: load -> invalid
;; proposal: MEMORY64

;; in core:
(table i64 1 funcref)
