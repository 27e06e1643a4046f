;; attack: Uses descriptors of types, which no policy needs.
;; expect: load -> invalid
;; proposal: CUSTOM_DESCRIPTORS

;; in core:
(rec (type $a (descriptor $b) (struct)) (type $b (describes $a) (struct)))
