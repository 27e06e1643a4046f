;; attack: Uses arrays of a collected heap, which no policy needs.
;; expect: load -> invalid
;; proposal: GC

;; in core:
(type (array i8))
