;; attack: The first 50 % of a good policy.
;; expect: load -> invalid
;; bytes: cut 50
