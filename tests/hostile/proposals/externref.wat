;; attack: Uses references to what the host has, which no policy needs.
;; expect: load -> invalid
;; proposal: GC_TYPES

;; in core:
(func (param externref))
