;; attack: Uses exceptions, which no policy needs.
;; expect: load -> invalid

;; in core:
(tag $t)
(func (throw $t))
