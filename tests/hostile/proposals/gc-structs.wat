;; attack: Uses structs of a collected heap, which no policy needs.
;; expect: load -> invalid

;; in core:
(type (struct (field i32)))
