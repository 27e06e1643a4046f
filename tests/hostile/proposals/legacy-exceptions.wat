;; attack: Uses exceptions of the older kind, which no policy needs.
;; expect: load -> invalid

;; in core:
(func try end)
