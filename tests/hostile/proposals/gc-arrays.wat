;; attack: Uses arrays of a collected heap, which no policy needs.
;; expect: load -> invalid

;; in core:
(type (array i8))
