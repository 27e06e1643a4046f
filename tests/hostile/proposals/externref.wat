;; attack: Uses references to what the host has, which no policy needs.
;; expect: load -> invalid

;; in core:
(func (param externref))
