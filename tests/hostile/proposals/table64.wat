;; attack: Uses tables with 64-bit indices, which no policy needs.
;; expect: load -> invalid

;; in core:
(table i64 1 funcref)
