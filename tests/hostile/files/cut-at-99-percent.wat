;; attack: The first 99 % of a good policy.
;; expect: load -> invalid
;; bytes: cut 99
