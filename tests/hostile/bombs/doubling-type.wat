;; attack: A tuple of two tuples of two tuples: 40 lines for a type of a trillion fields.
;; expect: load -> invalid

;; in component:
(type $t0 (tuple u8 u8))
;; repeat 40: (type $t# (tuple $t#-1 $t#-1))
