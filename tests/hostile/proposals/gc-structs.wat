;; attack: Uses structs of a collected heap, which no policy needs.
;; expect: load -> invalid
;; proposal: GC

;; in core:
(type (struct (field i32)))
