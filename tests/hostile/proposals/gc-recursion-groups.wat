;; attack: Uses types that refer to each other, which no policy needs.
;; expect: load -> invalid
;; proposal: GC

;; in core:
(rec (type (func)) (type (func)))
