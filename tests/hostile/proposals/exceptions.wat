;; attack: Uses exceptions, which no policy needs.
;; expect: load -> invalid
;; proposal: EXCEPTIONS

;; in core:
(tag $t)
(func (throw $t))
