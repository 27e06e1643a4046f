;; attack: Uses exceptions of the older kind, which no policy needs.
;; expect: load -> invalid
;; proposal: LEGACY_EXCEPTIONS

;; in core:
(func try end)
